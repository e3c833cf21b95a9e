// Stands for the driver's library on a machine without one: the programs look
// for libcuda.so.1 before they load the plugin. Beside the emulated plugin
// alone, whose device needs nothing of it.
