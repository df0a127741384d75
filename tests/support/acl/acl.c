/* A device that is the host's memory, and says what it is asked to launch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <acl/acl.h>

static int arguments_given;
static char launched[64];

int rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length);

int rtGetC2cCtrlAddr(uint64_t *address, uint32_t *length) {
    *address = 1;
    *length = 8;
    return 0;
}

aclError aclInit(const char *config) { return config != NULL; }
aclError aclFinalize(void) { return 0; }
aclError aclrtSetDevice(int32_t device) { return device; }
aclError aclrtResetDevice(int32_t device) { return device; }
aclError aclrtCreateStream(aclrtStream *stream) { *stream = &launched; return 0; }
aclError aclrtDestroyStream(aclrtStream stream) { return stream == NULL; }
aclError aclrtSynchronizeStream(aclrtStream stream) { return stream == NULL; }

aclError aclrtMalloc(void **memory, size_t bytes, aclrtMemMallocPolicy policy) {
    *memory = calloc(1, bytes);
    return *memory == NULL || policy != ACL_MEM_MALLOC_HUGE_FIRST;
}

aclError aclrtFree(void *memory) { free(memory); return 0; }

aclError aclrtMemcpy(void *to, size_t most, const void *from, size_t bytes, aclrtMemcpyKind kind) {
    memcpy(to, from, bytes);
    return most < bytes || kind == 0;
}

aclError aclrtBinaryLoadFromFile(const char *path, aclrtBinaryLoadOptions *options, aclrtBinHandle *binary) {
    *binary = &launched;
    return path == NULL || options != NULL;
}

aclError aclrtBinaryUnLoad(aclrtBinHandle binary) { return binary == NULL; }

aclError aclrtBinaryGetFunction(const aclrtBinHandle binary, const char *name, aclrtFuncHandle *function) {
    snprintf(launched, sizeof launched, "%s", name);
    *function = &launched;
    return binary == NULL;
}

aclError aclrtKernelArgsInit(aclrtFuncHandle function, aclrtArgsHandle *arguments) {
    *arguments = &arguments_given;
    return function == NULL;
}

aclError aclrtKernelArgsAppend(aclrtArgsHandle arguments, void *value, size_t bytes, aclrtParamHandle *parameter) {
    *parameter = value;
    arguments_given++;
    return arguments == NULL || bytes != 8;
}

aclError aclrtKernelArgsFinalize(aclrtArgsHandle arguments) { return arguments == NULL; }

aclError aclrtLaunchKernelWithConfig(aclrtFuncHandle function, uint32_t blocks, aclrtStream stream,
                                     aclrtLaunchKernelCfg *config, aclrtArgsHandle arguments, void *reserved) {
    printf("%s on %u blocks with %d arguments\n", launched, blocks, arguments_given);
    return function == NULL || stream == NULL || config != NULL || arguments == NULL || reserved != NULL;
}
