package model

// Level is what this version enforces of the state in the store. Whoever writes a state names in
// the marker the level that it needs, and an agent of a lower level leaves that state alone: it
// would pass over what it does not know, and enforce less than a policy says. A reflector does not
// write a state that agents which report could not enforce.
//
// Raise it by one with a field, a kind of object or a value that a reader has to know in order to
// enforce all that a policy says. Do not raise it for additional information, such as a display
// name. TestLevelIsThatOfTheModel asks, whenever model.proto changes.
const Level = 0
