/* The functions of mzcache.h by name, for ggml_backend_reg_get_proc_address(). */
#ifndef MZ_CONTROL_API_H
#define MZ_CONTROL_API_H

/* The function's address, or NULL. Any thread. */
void *mz_api_find(const char *name);

#endif
