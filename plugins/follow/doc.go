// Package follow keeps a reader in step with what a store has below a prefix: it lists,
// watches, and lists again whatever breaks the watch. It is the one loop for everybody who
// follows the store.
//
// # Invariants
//
//   - A reader gets a snapshot first, then every change after it in order; after whatever
//     breaks the watch it gets another snapshot.
//   - A reader with a Proof gets only what the store proves to be whole. Until then what it
//     has stays in force.
//   - For a reader without one, a store that lost its data takes nothing away during the grace
//     period: what the snapshot lacks stays in force. A store without any entry is never
//     believed when there were some.
//   - The time between attempts doubles up to a bound, half of it at random, and starts over
//     after a watch that lasted.
//   - An error that the store has logged is not logged again; any other one is logged once a
//     minute at most.
package follow
