// Package mirror tracks the content of VPP. It is read once and then updated with every change that
// VPP acknowledges. The package contains the calls of VPP, the tags that identify ACLs, the lists
// of interfaces, and spare ACLs. It does not decide which ACLs exist, or when they change.
package mirror
