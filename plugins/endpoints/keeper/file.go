package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/statefile"
)

// claimsFile saves claims for the next start.
type claimsFile struct {
	path string // empty: nothing is saved
	node string
}

// root is the prefix of all keys of the file: interface indexes are meaningless on another node and
// after a reboot.
func (f claimsFile) root() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("unknown")
	}
	return fmt.Sprintf("/endpoints/%s/%s/", f.node, strings.TrimSpace(string(boot)))
}

// load returns the content of the file.
func (f claimsFile) load(log *slog.Logger) (claims []endpoints.Claim) {
	if f.path == "" {
		return nil
	}
	_, entries, err := statefile.Load(f.path, f.root())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warn("saved interface claims cannot be used", "error", err)
		}
		return nil
	}
	for _, e := range entries {
		var c endpoints.Claim
		if err := json.Unmarshal(e.Value, &c); err != nil {
			log.Warn("a saved interface claim cannot be read", "key", e.Key, "error", err)
			continue
		}
		claims = append(claims, c)
	}
	return claims
}

func (f claimsFile) save(claims []endpoints.Claim) error {
	known := map[string][]byte{}
	for _, c := range claims {
		b, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("claim of interface %s: %w", c.Link.Name, err)
		}
		known[fmt.Sprintf("%s%s/%s", f.root(), c.Source, c.Owner)] = b
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return statefile.Save(f.path, statefile.Header{Root: f.root(), Saved: time.Now().UTC()}, known)
}

// load restores saved claims of existing interfaces. mu is held.
func (k *Keeper) load() {
	for _, c := range k.file.load(k.log) {
		d, there := k.devices[c.Link.Index]
		if !there || d.MAC != c.Link.MAC {
			continue
		}
		k.unscoped[d.Index] = true
		k.see(d)
		if err := k.reg.Claim(c); err != nil {
			k.log.Warn("a saved interface claim cannot be used", "interface", c.Link.Name, "error", err)
		}
	}
}

// sameClaim reports whether two claims are equal.
func sameClaim(a, b endpoints.Claim) bool {
	return a.Source == b.Source && a.Owner == b.Owner && a.Pod == b.Pod && a.UID == b.UID && a.Sandbox == b.Sandbox && a.Link == b.Link && slices.Equal(a.IPs, b.IPs)
}
