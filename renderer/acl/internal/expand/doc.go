// Package expand converts policy rules into ACL entries. It replaces address sets by their members,
// merges ports and prefixes where possible, removes shadowed entries, and maps every entry to its
// rule. It also makes the entries of guards. It is pure.
package expand
