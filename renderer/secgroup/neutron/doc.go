// Package neutron calls the API of OpenStack Neutron for package secgroup.
//
// Each call is made once, and is bounded by Options.Timeout. The next Apply of the renderer does
// again what failed. After an answer with Retry-After no call is made until then. Answers that the
// renderer tells apart wrap secgroup.ErrInUse, ErrQuota or ErrGone.
package neutron
