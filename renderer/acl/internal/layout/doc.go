// Package layout splits the ACL entries of a pod's table, or of the global table, over several VPP
// ACLs, and computes the order of the changes. From the current content of a table's ACLs, the
// desired content and the size limits, it computes the new content of each ACL and the order of the
// changes.
//
// A large table is split into blocks with one verdict. The order within a block does not matter, so
// a block is stored in segments by age. An address that joins changes a small ACL at the end, and
// old entries move to large ACLs in front. Both kinds of tables use this scheme. A local table has
// segments of its own (Sizes.Refit). The parts of the global table share one segment of recent
// entries, because an uplink has all of them (Sizes.RefitGlobal).
//
// The package is pure: it does not know ACL indexes, interfaces or calls. Its results depend only
// on its arguments, so equal input causes no changes.
package layout
