package main

import "github.com/coe-bridge/coe-bridge/test/lab/kubelab"

// manifests are a Deployment over both nodes with its Service, and, in another namespace,
// a Pod that kubelet looks after by probes.
const manifests = `
apiVersion: v1
kind: Namespace
metadata: {name: web}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: page, namespace: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: page}}
  template:
    metadata: {labels: {app: page}}
    spec:
      terminationGracePeriodSeconds: 4
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: page}}}
      containers:
        - name: page
          image: ` + kubelab.TestImage + `
          imagePullPolicy: Never
          args: [netexec, --http-port=8080]
          readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
          lifecycle: {preStop: {sleep: {seconds: 3}}} # until no client is led to it
---
apiVersion: v1
kind: Service
metadata: {name: page, namespace: web}
spec:
  type: NodePort
  selector: {app: page}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: till, namespace: shop}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: till
      image: ` + kubelab.TestImage + `
      imagePullPolicy: Never
      args: [netexec, --http-port=8080]
      startupProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 30}
      readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
      livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2}
`
