// Package memory tracks the memory of VPP: its main heap, on whose exhaustion VPP aborts, the part
// that our ACLs may use, and the session table. The caller computes what a plan needs (Demand).
package memory
