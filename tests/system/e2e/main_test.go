package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// What tests of programs have in common.
const patience = programs.Patience

var (
	program    = programs.Path
	socketDir  = programs.SocketDir
	eventually = programs.Eventually
	pollFor    = programs.Poll
	ask        = programs.Ask
	store      = programs.Store
)

func TestMain(m *testing.M) {
	etcd.Main()
	if text := os.Getenv(agentsEnv); text != "" {
		beAgents(text)
	}
	os.Exit(programs.Main(m))
}

// copyShop copies the shop example.
func copyShop(to string) error {
	return os.CopyFS(to, os.DirFS(filepath.Join("..", "..", "..", "docs", "examples", "shop")))
}
