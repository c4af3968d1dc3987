// Package install installs sluice-cni on a node. It copies the program to the folder of CNI
// plugins, and adds it to the container runtime's configuration of the pod network, after the other
// plugins. It takes both away again.
//
// # Invariants
//
//   - At every instant the folder has a whole configuration, the old one or the new one, also when
//     this process is killed.
//   - What others write is never lost: a file is exchanged with the new one, and put back if it is
//     not the one that was read.
//   - Other plugins, and members that are not known here, stay as they are.
//   - A configuration that cannot be read is left alone.
package install
