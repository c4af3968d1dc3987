// Package reach connects sluicectl with the agents of a cluster. It finds their pods by the API
// server, and has the kubelet run "sluicectl dial-stdio" in the pod of an agent, which joins its
// standard input and output with the agent's socket. So the rights are those of the cluster: to list
// pods and to execute commands in the namespace of the agents.
package reach
