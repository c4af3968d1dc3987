// Package layout decides what the ACLs of one list hold: a whole table in one ACL; or a front,
// whose order matters, a base of permits in several ACLs, which are replaced one by one, a small ACL
// with the latest permits, and an ACL that decides the rest. From
// what ACLs hold and the table that they are to hold, Sizes.Fit computes what they get, and Changes
// the messages that lead there, between which no packet meets a third verdict.
//
// The package is pure: it does not know ACL indexes, interfaces or calls. Its results depend only
// on its arguments, so equal input causes no changes.
package layout
