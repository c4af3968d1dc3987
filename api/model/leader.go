package model

// LeaderKey returns the key that exists as long as a reflector follows the cluster and
// writes its state. Its value is the JSON of a Leader.
func LeaderKey(prefix string) string { return prefix + "/ksr/leader" }

// Leader is who writes the state.
type Leader struct {
	Identity string `json:"identity"`
	Version  string `json:"version"`
	Since    string `json:"since"` // RFC 3339
}

// StatusRoot returns the prefix of what agents tell of themselves, with a final slash;
// the name of the node follows.
func StatusRoot(prefix string) string { return prefix + "/status/" }
