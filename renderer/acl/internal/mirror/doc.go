// Package mirror keeps a copy of VPP's ACLs and interface lists, and makes the calls that change
// them. It is read once and then updated with every change that VPP acknowledges. The package
// contains the calls of VPP, the tags that identify ACLs, and the lists of interfaces.
// It does not decide which ACLs exist, or when they change.
package mirror
