package model

// Entry is one key of the store and its value; in a watch, a nil Value means that the key was
// deleted.
type Entry struct {
	Key   string
	Value []byte
	// Revision is the revision at which the key was last written; 0 outside of lists of a store.
	Revision int64
}
