# Read by llama.cpp's build, not by ours: see scripts/llama.sh.
add_compile_options(-mno-amx-tile -mno-amx-int8 -mno-amx-bf16)
