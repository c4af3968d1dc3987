package plugin

// IsAlive is isAlive, for a test that runs the program beside it.
var IsAlive = isAlive
