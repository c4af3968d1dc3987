// Package mirror knows what VPP holds: it is read once, and changes with every change that VPP
// acknowledges. It has the calls of VPP, tags by which ACLs are found again, the lists of
// interfaces, and spare ACLs. Which ACLs there are to be, and when, others decide.
package mirror
