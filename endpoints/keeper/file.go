package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/endpoints"
	"github.com/sluice-net/sluice/plugins/keep"
)

// root is the prefix of all keys of the file: indexes of interfaces mean nothing to another node,
// and nothing after its next start.
func (k *Keeper) root() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot = []byte("unknown")
	}
	return fmt.Sprintf("/endpoints/%s/%s/", k.cfg.Node, strings.TrimSpace(string(boot)))
}

// recall claims what the file has, of interfaces that are there. mu is held.
func (k *Keeper) recall() {
	if k.cfg.File == "" {
		return
	}
	_, entries, err := keep.Load(k.cfg.File, k.root())
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			k.log.Warn("claims of interfaces that were kept cannot be used", "error", err)
		}
		return
	}
	for _, e := range entries {
		var c endpoints.Claim
		if err := json.Unmarshal(e.Value, &c); err != nil {
			k.log.Warn("a claim that was kept cannot be read", "key", e.Key, "error", err)
			continue
		}
		d, there := k.devices[c.Link.Index]
		if !there || d.MAC != c.Link.MAC {
			continue
		}
		k.held[d.Index] = true
		k.see(d)
		if err := k.reg.Claim(c); err != nil {
			k.log.Warn("a claim that was kept cannot be used", "interface", c.Link.Name, "error", err)
		}
	}
}

// remember keeps the claims for the next start, if they are others than those that were kept last.
// It returns what the file has.
func (k *Keeper) remember(saved []endpoints.Claim) []endpoints.Claim {
	k.mu.Lock()
	now := k.reg.Claims()
	k.mu.Unlock()
	if k.cfg.File == "" || slices.EqualFunc(now, saved, sameClaim) {
		return saved
	}
	err := k.save(now)
	k.mu.Lock()
	k.problem("file "+k.cfg.File, err)
	k.mu.Unlock()
	if err != nil {
		return saved
	}
	return now
}

func (k *Keeper) save(claims []endpoints.Claim) error {
	known := map[string][]byte{}
	for _, c := range claims {
		b, err := json.Marshal(c)
		if err != nil {
			return fmt.Errorf("claim of interface %s: %w", c.Link.Name, err)
		}
		known[fmt.Sprintf("%s%s/%s", k.root(), c.Source, c.Owner)] = b
	}
	if err := os.MkdirAll(filepath.Dir(k.cfg.File), 0o700); err != nil {
		return err
	}
	return keep.Save(k.cfg.File, keep.Header{Root: k.root(), Saved: time.Now().UTC()}, known)
}

// sameClaim reports whether two claims say the same.
func sameClaim(a, b endpoints.Claim) bool {
	return a.Source == b.Source && a.Owner == b.Owner && a.Pod == b.Pod && a.UID == b.UID && a.Sandbox == b.Sandbox && a.Link == b.Link && slices.Equal(a.IPs, b.IPs)
}
