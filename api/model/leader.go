package model

// LeaderKey returns the key that exists while a program leads: "ksr", a reflector that follows the
// cluster and writes its state, or "neutron", a sluice-neutron that changes security groups. Its
// value is the JSON of a Leader.
func LeaderKey(prefix, program string) string { return prefix + "/" + program + "/leader" }

// Leader identifies the active reflector, or the active sluice-neutron.
type Leader struct {
	Identity string `json:"identity"`
	Version  string `json:"version"`
	Since    string `json:"since"` // RFC 3339
}

// StatusRoot returns the prefix of the status that agents publish, with a final slash; the name of
// the node follows.
func StatusRoot(prefix string) string { return prefix + "/status/" }
