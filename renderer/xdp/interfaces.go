package xdp

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Indexes returns the indexes of interfaces of the node.
func Indexes(names []string) (out []uint32, err error) {
	for _, name := range names {
		l, e := netlink.LinkByName(name)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("interface %s: %w", name, e))
			continue
		}
		out = append(out, uint32(l.Attrs().Index))
	}
	return out, err
}
