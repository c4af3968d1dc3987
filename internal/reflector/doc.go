// Package reflector is the composition root of sluice-ksr: it joins the source of a
// cluster (plugins/ksr/kube) by a mirror (plugins/ksr/reflect) with the store, for as long as
// this process leads.
//
// Every replica follows the API server all the time, so that one that takes over knows
// the state already. The one that leads writes. It leads by a key in the same etcd that
// the state goes to, on a lease, and each of its writes depends on that key: whoever has
// lost it cannot write. A replica that the API server does not answer does not lead.
package reflector
