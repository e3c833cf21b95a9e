// A library without the plugin's symbol; what libcublas_absent.so is made of,
// too.
extern "C" int AttentionOtherLibrary();

int AttentionOtherLibrary() { return 0; }
