// Package memory knows what VPP has of memory: its main heap, which VPP ends without, what of it
// our ACLs may take, and its table of sessions. What a plan would take others say (Demand).
package memory
