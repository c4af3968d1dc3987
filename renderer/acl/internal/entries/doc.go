// Package entries defines ACL entries: the rules that VPP understands, each with prefixes and
// ranges of ports, in lists with the policy rules that they come from. It is pure and independent
// of any dataplane.
package entries
