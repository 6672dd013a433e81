/* The consumption order: passes, their splits, small passes, units that come and go. Units are named by digits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/state.h"
#include "fake_engine.h"

#define UNIT_BYTES (UINT64_C(64) << 10)
#define UNITS      10u

/* Units 0..5 lie in one region, 6..9 in another. */
struct ten {
    struct mz_core *core;
    struct mz_region *regions[2];
    struct mz_tensor *tensors[UNITS];
    char folder[32];
};

static void add(struct ten *ten, uint32_t number)
{
    char name[2] = {(char)('0' + number), 0};
    uint32_t in = number >= 6;
    struct mz_tensor_desc desc = {.name = name, .offset = (number - 6 * in) * UNIT_BYTES, .bytes = UNIT_BYTES,
                                  .kind = MZ_KIND_OTHER, .layer = -1};
    assert_int_equal(mz_region_add(ten->regions[in], &desc, &ten->tensors[number]), 0);
}

static void ten_make(struct ten *ten, uint32_t units)
{
    memset(ten, 0, sizeof(*ten));
    strcpy(ten->folder, "/var/tmp/mz-order-XXXXXX");
    assert_non_null(mkdtemp(ten->folder));
    struct mz_core_config config = {.engine = fake_engine(), .swap_folder = ten->folder, .workers = 2};
    assert_int_equal(mz_core_create(&config, &ten->core), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(mz_region_create(ten->core, 6 * UNIT_BYTES, MZ_KIND_OTHER, &ten->regions[i]), 0);
    for (uint32_t i = 0; i < units; i++)
        add(ten, i);
}

static void ten_free(struct ten *ten)
{
    for (uint32_t i = 0; i < 2; i++)
        mz_region_destroy(ten->regions[i]);
    mz_core_destroy(ten->core);
    rmdir(ten->folder);
}

static void teach(struct ten *ten, const char *units)
{
    struct mz_lesson lessons[UNITS];
    uint32_t n = 0;

    for (; units[n]; n++)
        lessons[n] = (struct mz_lesson){.unit = mz_tensor_unit(ten->tensors[units[n] - '0'], 0)};
    mz_core_teach(ten->core, lessons, n);
}

struct list {
    const char *where;
    uint32_t n;
    char text[UNITS + 1];
};

static void see(void *user, const struct mz_unit_view *view)
{
    struct list *list = user;

    if (list->where && strcmp(view->where, list->where) != 0)
        return;
    assert_true(list->n < UNITS);
    list->text[list->n++] = view->tensor[0];
}

/* Those in a place (NULL: anywhere), in order. */
static void assert_order(struct ten *ten, const char *where, const char *expected)
{
    struct list list = {.where = where};

    mz_core_visit(ten->core, see, &list);
    assert_string_equal(list.text, expected);
}

static void addresses_before_the_first_graph(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 0);
    add(&ten, 3);
    add(&ten, 0);
    add(&ten, 5);
    add(&ten, 1);
    assert_order(&ten, NULL, "0135");
    ten_free(&ten);
}

static void a_pass_gives_the_order(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 6);
    teach(&ten, "420513");
    assert_order(&ten, NULL, "420513");
    teach(&ten, "420513");
    assert_order(&ten, NULL, "420513");
    teach(&ten, "012345");
    assert_order(&ten, NULL, "012345");
    ten_free(&ten);
}

static void splits_are_merged(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 6);
    teach(&ten, "53");
    teach(&ten, "1");
    teach(&ten, "40");
    assert_order(&ten, NULL, "531402");
    for (int pass = 0; pass < 3; pass++) { /* the same again: no half of a pass changes anything */
        teach(&ten, "53");
        assert_order(&ten, NULL, "531402");
        teach(&ten, "1");
        assert_order(&ten, NULL, "531402");
        teach(&ten, "40");
        assert_order(&ten, NULL, "531402");
    }
    teach(&ten, "04");
    assert_order(&ten, NULL, "531402");
    teach(&ten, "135");
    assert_order(&ten, NULL, "041352"); /* now it is as large as the one before */
    teach(&ten, "2");
    assert_order(&ten, NULL, "041352");
    ten_free(&ten);
}

static void a_small_pass_does_not_replace(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 6);
    teach(&ten, "4321");
    assert_order(&ten, NULL, "432105");
    teach(&ten, "14"); /* an adapter */
    teach(&ten, "41");
    teach(&ten, "14");
    assert_order(&ten, NULL, "432105");
    teach(&ten, "1234"); /* as large */
    assert_order(&ten, NULL, "123405");
    teach(&ten, "");
    assert_order(&ten, NULL, "123405");
    ten_free(&ten);
}

static void unread_is_first_out(void **state)
{
    (void)state;
    struct ten ten;
    uint8_t bytes[UNIT_BYTES];
    struct mz_evict_report report;
    ten_make(&ten, 6);
    memset(bytes, 1, sizeof(bytes));
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(mz_region_write(ten.regions[0], i * UNIT_BYTES, bytes, sizeof(bytes)), 0);
    teach(&ten, "50");
    teach(&ten, "50312");
    teach(&ten, "05132"); /* 4 was never read */
    assert_order(&ten, NULL, "051324");
    static const char *const left[] = {"4", "24", "324", "1324", "51324", "051324"};
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(mz_core_evict(ten.core, UNIT_BYTES, "test", &report), 0);
        assert_int_equal(report.freed_bytes, UNIT_BYTES);
        assert_order(&ten, "store", left[i]);
    }
    ten_free(&ten);
}

/* Long unread units keep their order among themselves, behind all that passes read. */
static void former_order_of_the_unread(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 10);
    teach(&ten, "9876");
    assert_order(&ten, NULL, "9876012345");
    teach(&ten, "90123");
    assert_order(&ten, NULL, "9012387645");
    teach(&ten, "95678");
    assert_order(&ten, NULL, "9567801234");
    ten_free(&ten);
}

static void new_units_come_last(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 4);
    teach(&ten, "3210");
    add(&ten, 7);
    assert_order(&ten, NULL, "32107");
    add(&ten, 4);
    teach(&ten, "47");
    assert_order(&ten, NULL, "321047");
    teach(&ten, "473210");
    assert_order(&ten, NULL, "473210");
    ten_free(&ten);
}

static void units_that_leave(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 10);
    teach(&ten, "9081726354");
    assert_order(&ten, NULL, "9081726354");
    teach(&ten, "73"); /* a pass has begun when its units go */
    mz_region_destroy(ten.regions[1]);
    ten.regions[1] = NULL;
    assert_order(&ten, NULL, "012354");
    teach(&ten, "01245"); /* with 3 they are as many as the pass that gave the order still has */
    assert_order(&ten, NULL, "301245");
    teach(&ten, "543210");
    assert_order(&ten, NULL, "543210");
    ten_free(&ten);
}

/* Units that no pass read say nothing about the size of one: a small pass stays small when they go. */
static void unread_units_that_leave(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 10);
    teach(&ten, "543210");
    mz_region_destroy(ten.regions[1]);
    ten.regions[1] = NULL;
    teach(&ten, "12");
    teach(&ten, "12345");
    assert_order(&ten, NULL, "543210");
    teach(&ten, "012345");
    assert_order(&ten, NULL, "012345");
    ten_free(&ten);
}

static void a_shifted_tensor_is_new(void **state)
{
    (void)state;
    struct ten ten;
    ten_make(&ten, 5);
    teach(&ten, "43210");
    assert_int_equal(mz_tensor_shift(ten.tensors[4], 4096), 0);
    assert_order(&ten, NULL, "32104");
    teach(&ten, "4012");
    assert_order(&ten, NULL, "40123");
    ten_free(&ten);
}

/* Round and round: what is ahead, what is behind, and what passes do not read; places are the other way round. */
static void order_of_next_use(void **state)
{
    (void)state;
    struct ten ten;
    static const char *const expected[] = {"315024", "150324", "031524", "315024"};
    static const uint32_t positions[] = {0, 1, 3, 4};
    ten_make(&ten, 6);
    teach(&ten, "3150");
    pthread_mutex_lock(&ten.core->lock);
    mz_order_refresh(ten.core);
    for (uint32_t i = 0; i < 4; i++) {
        ten.core->position = positions[i];
        for (uint32_t k = 0; k < 6; k++) {
            const struct mz_unit *unit = mz_order_next(ten.core, k);
            assert_int_equal(mz_tensor_name(unit->tensor)[0], expected[i][k]);
            assert_int_equal(mz_order_place(ten.core, unit), k);
        }
    }
    pthread_mutex_unlock(&ten.core->lock);
    ten_free(&ten);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_before_the_first_graph),
        cmocka_unit_test(a_pass_gives_the_order),
        cmocka_unit_test(order_of_next_use),
        cmocka_unit_test(splits_are_merged),
        cmocka_unit_test(a_small_pass_does_not_replace),
        cmocka_unit_test(unread_is_first_out),
        cmocka_unit_test(former_order_of_the_unread),
        cmocka_unit_test(new_units_come_last),
        cmocka_unit_test(units_that_leave),
        cmocka_unit_test(unread_units_that_leave),
        cmocka_unit_test(a_shifted_tensor_is_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
