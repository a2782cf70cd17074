// One action per run: node kafkajs_client.js ACTION JSON-ARGUMENTS; prints the outcome as JSON.
'use strict'

const { CompressionTypes, Kafka, logLevel } = require('kafkajs')

const [action, json] = process.argv.slice(2)
const request = JSON.parse(json)
const { sasl } = request.settings
if (sasl && sasl.token) sasl.oauthBearerProvider = async () => ({ value: sasl.token })
const kafka = new Kafka({
  clientId: 'kctl-tests',
  brokers: [request.bootstrap],
  logLevel: logLevel.ERROR,
  retry: { retries: 3 },
  ...request.settings,
})

async function until(holds) {
  const deadline = Date.now() + request.timeoutMs
  while (!holds() && Date.now() < deadline) await new Promise(resolve => setTimeout(resolve, 20))
}

async function withAdmin(act) {
  const admin = kafka.admin()
  await admin.connect()
  await act(admin)
  await admin.disconnect()
}

// A member of the group that notes what it reads and how many partitions it has; commits as it goes.
async function member(entries, owned, index) {
  const consumer = kafka.consumer({ groupId: request.group, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned[index] = (payload.memberAssignment[request.topic] || []).length
  })
  await consumer.connect()
  await consumer.subscribe({ topics: [request.topic], fromBeginning: true })
  await consumer.run({
    eachMessage: async ({ partition, message }) => {
      const key = message.key && message.key.toString()
      entries.push([partition, Number(message.offset), key, message.value.toString()])
    },
  })
  return consumer
}

async function leave(consumers) {
  for (const consumer of consumers) await consumer.stop() // commits what was processed
  for (const consumer of consumers) await consumer.disconnect()
}

const actions = {
  async createTopic() {
    const topics = [{ topic: request.topic, numPartitions: request.partitions, replicationFactor: 1 }]
    await withAdmin(admin => admin.createTopics({ topics, waitForLeaders: true }))
    return {}
  },

  async deleteTopic() {
    await withAdmin(admin => admin.deleteTopics({ topics: [request.topic] }))
    return {}
  },

  async produce() {
    const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await producer.connect()
    await producer.send({
      topic: request.topic,
      acks: -1,
      compression: request.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None,
      messages: request.records.map(([key, value]) => ({ key, value, headers: { codec: request.codec } })),
    })
    await producer.disconnect()
    return {}
  },

  async consume() {
    const entries = []
    const consumer = await member(entries, [0], 0)
    await until(() => entries.length >= request.count)
    await leave([consumer])
    return { entries }
  },

  // The ACLs that match before and after they are deleted.
  async manageAcls() {
    const filter = { ...request.acl, host: '*' }
    const outcome = {}
    await withAdmin(async admin => {
      await admin.createAcls({ acl: [filter] })
      outcome.created = (await admin.describeAcls(filter)).resources
      const { filterResponses } = await admin.deleteAcls({ filters: [filter] })
      outcome.deleted = filterResponses.map(each => each.matchingAcls.length)
      outcome.left = (await admin.describeAcls(filter)).resources
    })
    return outcome
  },

  // The error with which the first request ends.  With OAUTHBEARER, kafkajs takes a refusal for success.
  async connect() {
    const admin = kafka.admin()
    try {
      await admin.connect()
      await admin.listTopics()
      return { error: null }
    } catch (error) {
      return { error: error.name, message: error.message }
    } finally {
      await admin.disconnect()
    }
  },

  async share() {
    const entries = []
    const owned = [0, 0]
    const consumers = [await member(entries, owned, 0), await member(entries, owned, 1)]
    await until(() => owned[0] > 0 && owned[1] > 0 && owned[0] + owned[1] === request.partitions)
    const shared = [...owned] // before the first one leaves and the other gets its partitions
    await actions.produce()
    await until(() => entries.length >= request.records.length)
    await leave(consumers)
    return { entries, owned: shared }
  },
}

actions[action]().then(
  outcome => process.stdout.write(JSON.stringify(outcome) + '\n', () => process.exit(0)),
  error => {
    console.error(error)
    process.exit(1)
  }
)
