// Package reflector is the composition root of sluice-ksr: it connects the source of a cluster
// (plugins/ksr/kube) through a mirror (plugins/ksr/reflect) with the store, while this process
// leads.
//
// Every replica follows the API server all the time, so that it already knows the state when it
// takes over. Only the leader writes. Leadership is a key in the etcd with the state, on a lease,
// and each write depends on that key: a process that has lost it cannot write. A replica does not
// lead while the API server does not answer it.
package reflector
