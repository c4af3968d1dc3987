// Package reflect writes the objects of a source, an API server or manifests, to etcd: only where
// etcd differs.
//
// A Mirror is for a source that reports every change, such as the API server of a cluster. It holds
// the desired state of the source and the state of the store. A Reflector is for sources that are
// read occasionally, such as manifests: it holds no state, and compares with the store each time.
// Both maintain the completeness marker, which tells agents that the state is complete and to which
// cluster it belongs.
package reflect
