package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints"
)

// result is a file of CNI's result cache, as libcni writes it: by it a container runtime, as root,
// records for which pod it has set up which network namespace.
type result struct {
	Kind        string      `json:"kind"`
	ContainerID string      `json:"containerId"`
	IfName      string      `json:"ifName"`
	NetNS       string      `json:"netns"`
	Args        [][2]string `json:"cniArgs"`
	Result      struct {
		Interfaces []struct {
			Name    string `json:"name"`
			MAC     string `json:"mac"`
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
		IPs []struct {
			Address string `json:"address"`
		} `json:"ips"`
	} `json:"result"`

	since time.Time
	pod   api.PodID
	uid   string
}

// maxResult bounds the size of a file in bytes.
const maxResult = 1 << 20

// primary is the name that container runtimes give to a pod's first interface, which has its
// addresses.
const primary = "eth0"

// loopback is the name of the loopback interface, which container runtimes also set up through CNI.
// It has the same addresses in all pods, and does not identify a pod.
const loopback = "lo"

// readResults reads the cache. It skips and reports what cannot be read.
func readResults(folder string) (out []result, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		r, err := readResult(filepath.Join(folder, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist), err != nil && isFresh(e): // it is gone, or is being written: an event will report its completion
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", e.Name(), err))
		case r.IfName == loopback:
		case r.Kind == "cniCacheV1" && r.pod.Namespace != "" && r.pod.Name != "":
			out = append(out, r)
		}
	}
	// containers with a known first interface: policy applies to that one
	first := map[string]bool{}
	for _, r := range out {
		first[r.ContainerID] = first[r.ContainerID] || r.IfName == primary
	}
	out = slices.DeleteFunc(out, func(r result) bool { return first[r.ContainerID] && r.IfName != primary })
	return out, errors.Join(errs...)
}

// isFresh reports whether a file was written within the last seconds.
func isFresh(e fs.DirEntry) bool {
	info, err := e.Info()
	return err == nil && time.Since(info.ModTime()).Abs() < rescan/3
}

func readResult(path string) (r result, err error) {
	b, err := readFile(path, maxResult)
	if err != nil {
		return r, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, err
	}
	r.since = info.ModTime().UTC()
	for _, a := range r.Args {
		switch a[0] {
		case "K8S_POD_NAMESPACE":
			r.pod.Namespace = a[1]
		case "K8S_POD_NAME":
			r.pod.Name = a[1]
		case "K8S_POD_UID":
			r.uid = a[1]
		}
	}
	for _, i := range r.Result.Interfaces {
		if r.NetNS == "" {
			r.NetNS = i.Sandbox // caches of libcni before 1.1 have it only here
		}
	}
	return r, nil
}

// readFile reads a file of a limited size; it rejects files that could block.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it has more than %d bytes", limit)
	}
	return b, err
}

// addresses returns the addresses that the pod received.
func (r result) addresses() (out []netip.Addr) {
	for _, ip := range r.Result.IPs {
		if p, err := netip.ParsePrefix(ip.Address); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// owner identifies the claim of a result, as wire.Attachment does.
func (r result) owner() string { return r.ContainerID + "/" + r.IfName }

// open opens the network namespace of a result.
func (r result) open(folder string) (f *os.File, err error) {
	paths := []string{r.NetNS}
	if folder != "" {
		paths = append(paths, filepath.Join(folder, filepath.Base(r.NetNS)))
	}
	for _, path := range paths {
		if f, err = openNamespace(path); err == nil {
			return f, nil
		}
	}
	return nil, err
}

func openNamespace(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var s unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &s); err != nil || s.Type != unix.NSFS_MAGIC {
		return nil, errors.Join(fmt.Errorf("%s is not a network namespace", path), err, f.Close())
	}
	return f, nil
}

// find reads CNI's results and claims their interfaces. mu is held.
func (k *Keeper) find() {
	if k.cfg.Results == "" {
		return
	}
	results, err := readResults(k.cfg.Results)
	k.problems.record("CNI results in "+k.cfg.Results, err)
	spaces := map[int]*os.File{} // by the index of the result
	defer func() {
		for _, f := range spaces {
			_ = f.Close() // opened for reading
		}
	}()
	for i, r := range results {
		f, err := r.open(k.cfg.NetNS)
		if err != nil {
			k.log.Debug("network namespace of a pod could not be opened", "pod", r.pod, "netns", r.NetNS, "error", err)
			continue // it is gone, or not there yet
		}
		spaces[i] = f
	}
	all, err := devices() // after opening: ids of open namespaces are not reused
	if err != nil {
		k.problems.record("interfaces", err)
		return
	}
	k.problems.record("interfaces", nil)
	found := map[uint32][]endpoints.Claim{}
	clear(k.sandboxes)
	for i, f := range spaces {
		id, ok := idOf(f)
		if !ok {
			continue
		}
		k.sandboxes[id] = results[i].pod
		for n, d := range results[i].pairs(all, id) {
			found[d.Index] = append(found[d.Index], results[i].claim(n, d.Link))
		}
	}
	for _, d := range all {
		if len(found[d.Index]) == 0 {
			continue
		}
		k.discover(d)
		k.unscoped[d.Index] = true
		k.see(d)
		if err := k.reg.Found(endpoints.SourceNamespace, d.Link, found[d.Index]); err != nil {
			k.log.Warn("interface could not be claimed", "interface", d.Name, "error", err)
		}
	}
}

// pairs returns the interfaces of the node whose peers are in the namespace of a result; id is the
// node's id of the namespace. If there are several, the result selects one.
func (r result) pairs(all []device, id int) []device {
	in := slices.DeleteFunc(slices.Clone(all), func(d device) bool { return !d.pair || d.netns != id })
	named := slices.DeleteFunc(slices.Clone(in), func(d device) bool {
		for _, i := range r.Result.Interfaces {
			if i.Sandbox == "" && (i.Name == d.Name || i.MAC != "" && strings.EqualFold(i.MAC, d.MAC)) {
				return false
			}
		}
		return true
	})
	if len(in) > 1 && len(named) > 0 {
		return named
	}
	return in
}

// claim returns the claim of a result for its nth interface.
func (r result) claim(n int, l endpoints.Link) endpoints.Claim {
	owner := r.owner()
	if n > 0 {
		owner = fmt.Sprintf("%s#%d", owner, n)
	}
	return endpoints.Claim{Owner: owner, Pod: r.pod, UID: r.uid, Sandbox: r.ContainerID, Link: l, IPs: r.addresses(), Since: r.since}
}
