// Package datasync turns the store into one stream of changes for one event
// loop: the second room of the flow, between what ksr reflects into etcd and the
// cache of the policy plugin.
//
// A Watcher takes a snapshot of the store at a revision and follows the store
// from there. Whatever breaks the watch ends in another snapshot, which the
// consumer gets as one resync. The consumer takes what is pending with Next when
// it is ready for it, usually after the transaction that the last changes led to;
// meanwhile changes coalesce per object.
//
// # Invariants
//
//   - The first Changes are a resync. Applying all Changes in turn gives the
//     state of the store at their Revision, except for the two cases below.
//   - Pending changes are at most one per object, the newest, whatever the
//     consumer does. A resync replaces what was pending; what comes after it is
//     merged into it.
//   - There is no order between objects, and a deletion may name an object that
//     the consumer never heard of.
//   - A value that does not decode changes nothing: the last good one stays in
//     force, in a resync too. It is reported once.
//   - A store that lost its data takes nothing away for a time of grace: what it
//     does not hold (yet) stays in force, since no policy would mean no
//     protection. A store without any object is never believed when there were
//     some.
//
// The goroutine of Run decodes; the consumer's only takes over what is ready.
package datasync
