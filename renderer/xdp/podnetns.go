package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// Namespaces finds the network namespaces of pods, for the modes that attach there, by the other
// ends of pairs.
type Namespaces struct {
	// Folder has a file for every network namespace, as those that set up pods leave them. If
	// the one that is looked for is not there, those of the processes that can be seen are
	// tried.
	Folder string
}

// Of opens the network namespace in which the other end of an endpoint's pair is, and returns the
// number of that end there. The caller closes the file.
func (n Namespaces) Of(e compile.Endpoint) (ns *os.File, index uint32, err error) {
	l, err := netlink.LinkByIndex(int(e.ID))
	if err != nil {
		return nil, 0, fmt.Errorf("interface %d: %w", e.ID, err)
	}
	a := l.Attrs()
	if l.Type() != "veth" || a.NetNsID < 0 || a.ParentIndex == 0 {
		return nil, 0, fmt.Errorf("interface %s has no other end in a network namespace", a.Name)
	}
	for _, pattern := range []string{filepath.Join(n.Folder, "*"), "/proc/[0-9]*/ns/net"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return nil, 0, err
		}
		for _, path := range paths {
			if ns, err := openIf(path, a.NetNsID); err == nil {
				return ns, uint32(a.ParentIndex), nil
			} // it is another one, or not there any more
		}
	}
	return nil, 0, fmt.Errorf("the network namespace behind interface %s is neither in %s nor that of a process that can be seen", a.Name, n.Folder)
}

var errOther = errors.New("it is another namespace")

// openIf opens a namespace if it is the one that the kernel gave a number.
func openIf(path string, id int) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	got, err := netlink.GetNetNsIdByFd(int(f.Fd()))
	if err == nil && got != id {
		err = errOther
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
