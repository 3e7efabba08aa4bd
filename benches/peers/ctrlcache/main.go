// ctrlcache holds what a controller-runtime controller over the given kinds holds: its cache, synced and idle.
//
// It prints one line when the cache is synced, and stays until it is told to end.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	certificates "k8s.io/api/certificates/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"

	"stratum.ciq.com/peers/cluster"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	watch := flag.String("watch", "nodes,csrs", "kinds to hold: nodes, csrs, pods")
	strip := flag.Bool("strip", true, "drop managedFields before they are stored")
	flag.Parse()
	log.SetLogger(klog.Background())

	options := cache.Options{Scheme: scheme.Scheme}
	if *strip {
		options.DefaultTransform = cache.TransformStripManagedFields()
	}
	objects, err := cache.New(cluster.Config(*kubeconfig), options)
	cluster.Check(err)

	began := time.Now()
	stop := signals.SetupSignalHandler()
	for kind := range strings.SplitSeq(*watch, ",") {
		_, err := objects.GetInformer(stop, object(kind), cache.BlockUntilSynced(false))
		cluster.Check(err)
	}
	ended := make(chan error)
	go func() { ended <- objects.Start(stop) }()
	if !objects.WaitForCacheSync(stop) {
		cluster.Check(fmt.Errorf("the cache did not sync"))
	}
	cluster.Print(map[string]any{"pid": os.Getpid(), "syncedSeconds": time.Since(began).Seconds()})
	cluster.Check(<-ended)
}

func object(kind string) client.Object {
	switch kind {
	case "nodes":
		return &core.Node{}
	case "csrs":
		return &certificates.CertificateSigningRequest{}
	case "pods":
		return &core.Pod{}
	default:
		cluster.Check(fmt.Errorf("kind %q is none of nodes, csrs, pods", kind))
		return nil
	}
}
