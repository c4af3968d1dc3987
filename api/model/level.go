package model

import "fmt"

// Level is what this version enforces of the state in the store. Whoever writes a state names in
// the marker the level that it needs, and an agent of a lower level leaves that state alone. It
// would pass over what it does not know, and enforce less than a policy says. A reflector does not
// write a state that agents which report could not enforce.
//
// Raise it by one with a field, a kind of object or a value that a reader has to know in order to
// enforce all that a policy says. Do not raise it for additional information, such as a display
// name. TestLevelIsThatOfModel asks, whenever model.proto changes.
const Level = 1

// CheckLevel returns an error for the marker of a state of which this version would enforce less
// than policies say.
func (m *Marker) CheckLevel() error {
	if m.Level <= Level {
		return nil
	}
	return fmt.Errorf("the state needs an agent of level %d, and this one is of level %d and would enforce less than policies say; "+
		"upgrade sluice-agent: %s wrote it", m.Level, Level, Quoted(m.Writer))
}
