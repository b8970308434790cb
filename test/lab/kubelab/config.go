package kubelab

// containerdConfig is for containerd 1.6 and later.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`

// kubeletConfig is a format with a place for the address of the name server. It is for a kubelet in a cgroup namespace, on a machine whose disk may be nearly full, with short intervals.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
clusterDNS: ["%s"]
clusterDomain: cluster.local
resolvConf: ""
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: 1Mi, nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
maxPods: 250
staticPodPath: /etc/kubelab/manifests
fileCheckFrequency: 2s
nodeStatusUpdateFrequency: 4s
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 500
kubeAPIBurst: 1000
`
