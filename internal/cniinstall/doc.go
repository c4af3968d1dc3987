// Package cniinstall puts sluice-cni on a node: the program into the folder of CNI's plugins, and
// its name behind the plugins of the network of pods, in the configuration that the container
// runtime reads. It takes both away again.
//
// # Invariants
//
//   - At every instant the folder has a whole configuration, the old one or the new one, also when
//     this process is killed.
//   - What others write is never lost: a file is exchanged with the new one, and put back if it is
//     not the one that was read.
//   - Other plugins, and members that are not known here, stay as they are.
//   - A configuration that cannot be read is left alone.
package cniinstall
