// Package datasync merges the snapshot and the watch of etcd into one stream of changes for the
// event loop of the policy plugin. It sits between the state that ksr reflects into etcd and the
// cache of the policy plugin.
//
// A Watcher takes a snapshot of the store at a revision and follows the store from there. When the
// watch breaks, it takes another snapshot, which the consumer gets as one resync. The consumer
// fetches pending changes with Next when it is ready, usually after the transaction for the
// previous changes; meanwhile changes are coalesced per object.
//
// # Invariants
//
//   - The first Changes are a resync. Applying all Changes in turn gives the
//     state of the store at their Revision, except in the last two cases below.
//   - There is at most one pending change per object, the newest, whatever the
//     consumer does. A resync replaces what was pending; later changes are
//     merged into it.
//   - Objects come in any order, and a deletion may name an object that
//     the consumer never received.
//   - A value that does not decode changes nothing: the last valid one stays in
//     force, even in a resync. It is reported once.
//   - If the store lost its data, the missing objects stay in force during the grace
//     period, since no policy would mean no protection. A store without any object is
//     never believed if there were some before.
//
// The goroutine of Run decodes; that of the consumer only fetches the result.
package datasync
