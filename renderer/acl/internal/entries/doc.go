// Package entries has the entries of ACLs: the rules that VPP knows, each with blocks of addresses
// and ranges of ports, in lists with the rules of policy that they come from. It is pure: nothing
// here knows a dataplane.
package entries
