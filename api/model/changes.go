package model

import "google.golang.org/protobuf/proto"

// Delta is the new state of one object; a nil Value means that it was deleted.
type Delta struct {
	ID    ID
	Value proto.Message
}

// Changes holds what changed since the previous Changes: at most one Delta per object, with its
// latest state. With Resync it holds the complete state: objects that are not in it do not exist.
// The Deltas are in no particular order: a pod may precede its namespace.
type Changes struct {
	Resync   bool
	Deltas   []Delta
	Revision int64 // store revision after these changes
}
