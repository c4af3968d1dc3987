// Package neutron calls the API of OpenStack Neutron for package secgroup.
//
// Each call is made once, and is bounded by Options.Timeout. The next Commit of the renderer does
// again what failed. Answers that the renderer tells apart wrap
// secgroup.ErrInUse, ErrQuota or ErrGone.
package neutron
