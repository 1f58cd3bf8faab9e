// Package replace writes files whole: whoever opens one finds what was there before or all that was written, never a part.
//
// On Unix it is google/renameio, which also keeps the permissions of the umask. Windows has no rename that is promised to be atomic
// (golang.org/issue/22397), so renameio has no code there: a file beside the target is flushed and takes its name by MoveFileEx
// with MOVEFILE_REPLACE_EXISTING, which os.Rename calls and which every program relies on there. It fails, with the file that was
// there before unharmed, while another process has the target open without sharing its deletion.
//
// A process that is killed leaves its file beside the target. The next one that writes the same target removes it, and none of a process
// that lives: each holds a lock on its own, which the system lets go of with the process.
package replace
