// Command infer is Terrace's command line: one file a command, flags turned into the options of the packages below.
//
// It owns flag names, the environment (TERRACE_<FLAG>), the configuration file, exit codes, and what is written to stdout
// (data) and stderr (everything else). It holds no logic of its own: what a command does lives in the packages it calls.
package main
