package view

import (
	"fmt"
	"os"
	"path/filepath"
)

// SocketEnv names the variable that says where the agent's debug API listens.
const SocketEnv = "SLUICE_API_SOCKET"

// RootSocket is where the debug API of an agent of root listens.
const RootSocket = "/run/sluice/agent.sock"

// DefaultSocket returns the path of the agent's debug API: SLUICE_API_SOCKET, or
// /run/sluice/agent.sock for root, or a path in the user's runtime directory.
func DefaultSocket() string {
	if s := os.Getenv(SocketEnv); s != "" {
		return s
	}
	if os.Geteuid() == 0 {
		return RootSocket
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "sluice", "agent.sock")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("sluice-%d", os.Geteuid()), "agent.sock")
}
