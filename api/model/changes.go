package model

import "google.golang.org/protobuf/proto"

// Delta is the new state of one object; a nil Value says that it was deleted.
type Delta struct {
	ID    ID
	Value proto.Message
}

// Changes are what happened since the last Changes: at most one Delta per
// object, its newest state. With Resync they are the whole state: an object that
// they do not name does not exist. There is no order between objects: a pod may
// come before its namespace.
type Changes struct {
	Resync   bool
	Deltas   []Delta
	Revision int64 // of the store, that these changes lead to
}
