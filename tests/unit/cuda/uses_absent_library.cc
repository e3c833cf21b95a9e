// A library that needs another one, which is not where it is looked for.
extern "C" int AttentionOtherLibrary();
extern "C" int AttentionUsesAbsentLibrary();

int AttentionUsesAbsentLibrary() { return AttentionOtherLibrary(); }
