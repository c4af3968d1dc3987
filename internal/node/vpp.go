package node

import (
	"cmp"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// VPP has policy enforced by ACLs in the VPP behind a socket. Of its Options, OnChange and
// Pods.Elsewhere are the node's, and Log where it is nil.
type VPP struct {
	Options acl.Options
	ACL     *acl.Renderer // made by Open
}

// Open implements Backend.
func (v *VPP) Open(h Host) (err error) {
	v.ACL, err = acl.New(hosted(v.Options, h))
	return err
}

// hosted fills in what the node offers.
func hosted(o acl.Options, h Host) acl.Options {
	o.Log, o.OnChange, o.Pods.Elsewhere = cmp.Or(o.Log, h.Log), h.OnChange, h.Served
	return o
}

// Renderer implements Backend.
func (v *VPP) Renderer() renderer.Renderer { return v.ACL }

// Close implements Backend.
func (v *VPP) Close() error { return v.ACL.Close() }
