package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/cli/credentials"
)

// TestRolesAreThoseOfGuide: a test of kvstore runs the commands of the guide on a real etcd.
func TestRolesAreThoseOfGuide(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guide", "ksr.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands, err := credentials.Roles("/sluice", []string{"node-1", "node-2"})
	if err != nil {
		t.Fatal(err)
	}
	if block := "```sh\n" + strings.Join(commands, "\n") + "\n```\n"; !strings.Contains(string(guide), block) {
		t.Errorf("the guide has not the commands:\n%s", block)
	}
}

// TestRolesAreForOneNodeEach: no agent writes what another node reports, also where the name of one
// begins with that of the other.
func TestRolesAreForOneNodeEach(t *testing.T) {
	commands, err := credentials.Roles("/a/b", []string{"n", "n1"})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(commands, "\n")
	for _, want := range []string{
		"grant-permission sluice-agent-n readwrite /a/b/status/n\n", "grant-permission sluice-agent-n1 readwrite /a/b/status/n1\n",
		"grant-permission --prefix=true sluice-cni-n readwrite /a/b/vswitch/n/\n", "grant-permission --prefix=true sluice-cni-n1 readwrite /a/b/vswitch/n1/\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%s has not %q", text, want)
		}
	}
	shared, err := credentials.Roles("/sluice", nil)
	if err != nil || !strings.Contains(strings.Join(shared, "\n"), "--prefix=true sluice-agent readwrite /sluice/status/\n") {
		t.Errorf("one role for all nodes is %q, %v", shared, err)
	}
}

// TestRolesRefuseShellCharacters: the commands go to a shell.
func TestRolesRefuseShellCharacters(t *testing.T) {
	for _, tc := range []struct {
		prefix string
		nodes  []string
		want   string
	}{
		{"/sluice; reboot", nil, "--etcd-prefix \"/sluice; reboot\""},
		{"/sluice/", nil, "--etcd-prefix"},
		{"", nil, "--etcd-prefix"},
		{"/$(reboot)", nil, "--etcd-prefix"},
		{"/sluice", []string{"n1; reboot"}, "--node \"n1; reboot\""},
		{"/sluice", []string{"../n1"}, "--node"},
		{"/sluice", []string{"n1/"}, "--node"},
		{"/sluice", []string{""}, "--node"},
		{"/sluice", []string{"n1", "n1"}, "--node \"n1\": want the name of a node, once"},
	} {
		if out, err := credentials.Roles(tc.prefix, tc.nodes); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, %v", tc, out, err)
		}
	}
}
