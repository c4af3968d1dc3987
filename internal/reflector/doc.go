// Package reflector is the program sluice-ksr: it writes the state of a cluster from the API server
// (plugins/ksr/kube) to etcd (plugins/ksr/reflect) while this replica is the leader.
//
// Every replica follows the API server all the time, so that it already knows the state when it
// takes over. Only the leader writes. Leadership is a key in the etcd with the state, on a lease,
// and each write depends on that key: a process that has lost it cannot write. A replica does not
// lead while the API server does not answer it.
package reflector
