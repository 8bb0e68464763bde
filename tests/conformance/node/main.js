// kafkajs against a broker: produce, groups, offsets, admin, errors. (kafkajs itself brings gzip only.)
import kafkajs from 'kafkajs'
const { Kafka, CompressionTypes, logLevel } = kafkajs

const check = (holds, what) => {
  if (!holds) { console.log('FAILED', what); process.exit(1) }
  console.log('ok', what)
}
const until = async (condition, what) => {
  const deadline = Date.now() + 30000
  while (!(await condition())) {
    if (Date.now() > deadline) check(false, what)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  check(true, what)
}

const kafka = new Kafka({ clientId: 'conformance', brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING })
const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ topics: [{ topic: 'js', numPartitions: 4, configEntries: [{ name: 'retention.ms', value: '5000' }] }] })
await until(async () => (await admin.listTopics()).includes('js'), 'created')
check(await admin.createTopics({ topics: [{ topic: 'js' }] }) === false, 'exists')
const described = await admin.describeConfigs({ resources: [{ type: 2, name: 'js' }] })
check(described.resources[0].configEntries.find(entry => entry.configName === 'retention.ms').configValue === '5000', 'describeConfigs')
check((await admin.describeCluster()).brokers.length === process.argv[2].split(',').length, 'describeCluster')

const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
await producer.connect()
for (const compression of [CompressionTypes.None, CompressionTypes.GZIP]) {
  const messages = Array.from({ length: 200 }, (_, i) => ({ key: `k${i}`, value: `v${i}`, headers: { h: 'x' }, partition: i % 4 }))
  await producer.send({ topic: 'js', messages, compression, acks: -1 })
}
await producer.disconnect()
const ends = await admin.fetchTopicOffsets('js')
check(ends.reduce((sum, each) => sum + Number(each.high), 0) === 400, 'offsets')

const seen = new Set()
const start = async () => {
  const consumer = kafka.consumer({ groupId: 'js-readers', sessionTimeout: 6000, heartbeatInterval: 300 })
  await consumer.connect()
  await consumer.subscribe({ topic: 'js', fromBeginning: true })
  await consumer.run({ eachMessage: async ({ partition, message }) => { seen.add(`${partition}-${message.offset}`) } })
  return consumer
}
const first = await start()
await until(() => seen.size === 400, 'read all')
const second = await start()
await until(async () => {
  const group = (await admin.describeGroups(['js-readers'])).groups[0]
  return group.state === 'Stable' && group.members.length === 2
}, 'two members')
await second.disconnect()
await first.disconnect()
const committed = await admin.fetchOffsets({ groupId: 'js-readers', topics: ['js'] })
check(committed[0].partitions.reduce((sum, each) => sum + Number(each.offset), 0) === 400, 'committed')
await admin.resetOffsets({ groupId: 'js-readers', topic: 'js', earliest: true })
check((await admin.listGroups()).groups.some(group => group.groupId === 'js-readers'), 'listGroups')
await admin.deleteGroups(['js-readers'])
await admin.deleteTopics({ topics: ['js'] })
check(!(await admin.listTopics()).includes('js'), 'deleted')
await admin.disconnect()
console.log('all ok')
