// Package follow keeps a reader up to date with the keys below a prefix of etcd: it lists, watches,
// and lists again when the watch breaks. All followers of the store share this loop.
//
// # Invariants
//
//   - A reader gets a snapshot first, then every later change in order; when the watch breaks it
//     gets another snapshot.
//   - A reader with a Proof gets only content that the store proves to be complete. Until then
//     the previous state stays in force.
//   - For a reader without a Proof, entries that are missing because the store lost its data stay
//     in force during the grace period. A store without any entry is never believed if there
//     were some before.
//   - The delay between attempts doubles up to a bound, half of it is random, and it is reset
//     after a watch that lasted.
//   - An error that the store has logged is not logged again; any other error is logged at most
//     once a minute.
package follow
