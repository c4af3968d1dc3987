// Package layout says which entries stand in which ACL. From what the ACLs of a table hold, what
// they are to hold, and how large they may become, it makes what each of them is to hold, and the
// order in which they change.
//
// A table that is large is cut into blocks of one verdict. Within a block order means nothing, so
// it stands in segments by age: an address that joins changes a small ACL at the end, and what
// stands long moves to large ones in front. One scheme serves both kinds of tables. A local table
// has its segments for itself (Sizes.Refit); the parts of the global table share their young
// segment, since an uplink has all of them (Sizes.RefitGlobal).
//
// It is pure: it knows neither numbers of ACLs, nor interfaces, nor calls. What it makes depends on
// what it is given alone, so that equal input makes nothing to do.
package layout
